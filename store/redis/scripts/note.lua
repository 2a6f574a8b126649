-- Writes a note about more than a page into the hash.
-- KEYS: notes bell
-- ARGV: field('all', 'prefix' or a label) prefix host(the field where there is no room for the prefix)
--   mode(0: hard, 1: soft, 2: must validate) date(µs; 0: now) least(µs: no earlier than that) channel message
-- What is told again rings if it was forgotten, as in purge.lua.
-- Answers the note's date, how many heard the bell, and how many replicas follow.
local field, stamp = ARGV[1], tonumber(ARGV[5])
local now = clock()
local got = redis.pcall('HMGET', KEYS[1], 'last', 'prefix', ARGV[1], ARGV[3])
if got.err then -- a stranger's
  redis.call('DEL', KEYS[1])
  got = {}
end
local last = sane(got[1]) or 0
local news = stamp == 0
if news then
  stamp = math.max(now, last, tonumber(ARGV[6]))
end
local old = now - 1000 * longest -- what lay there then has gone by itself
local value = got[3]
if field == 'prefix' then
  local list, dates = {}, note()
  for was, prefix in lines(got[2]) do
    if prefix == ARGV[2] then
      dates = note(was)
    elseif math.max(unpack(note(was))) > old then
      list[#list + 1] = was .. '|' .. prefix
    end
  end
  if #list < prefixes then
    news = date(dates, kind(ARGV[4]), stamp) or news
    list[#list + 1] = noted(dates) .. '|' .. ARGV[2]
    value = table.concat(list, '\n')
  else
    field, value = ARGV[3], got[4]
  end
end
if field ~= 'prefix' then
  local dates = note(value)
  news = date(dates, kind(ARGV[4]), stamp) or news
  value = noted(dates)
end
-- As in must_set: deleting first lets the rest through.
redis.call('HDEL', KEYS[1], field)
redis.call('HSET', KEYS[1], field, value, 'last', int(math.max(last, stamp)))
redis.call('PEXPIRE', KEYS[1], longest)
local some = redis.pcall('HRANDFIELD', KEYS[1], 4, 'WITHVALUES')
for i = 1, some.err and 0 or #some, 2 do
  if #some[i] == 8 and math.max(unpack(note(some[i + 1]))) < old then
    redis.call('HDEL', KEYS[1], some[i])
  end
end
local heard = ring(KEYS[2], ARGV[7], stamp, revoked, 0, news and ARGV[8] or '')
return { now, stamp, heard, followers() }
