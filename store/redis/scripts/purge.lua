-- Dates a note, and for a page drops its head (hard) and turns its lease into a tombstone.
-- KEYS: note all-note bell [head lease]
-- ARGV: mode(0: hard, 1: soft, 2: must validate) channel message('': do not ring)
-- Answers the note's date, how many heard the bell, the page's head if there was one, and how many replicas follow.
local now = clock()
local got = read()
local stamps = note(got[1])
local hard, _, _, newest = notes(got[1], got[2])
local kept, held = entry(got[4]), lease(got[5])
local stamp = math.max(now, newest)
if held then
  stamp = math.max(stamp, held.taken)
end
if kept then
  stamp = math.max(stamp, kept.leased)
end
stamps[tonumber(ARGV[1]) + 1] = stamp
must_set(KEYS[1], table.concat({ 'N1', int(stamps[1]), int(stamps[2]), int(stamps[3]) }, '|'), longest)
if kept and ARGV[1] == '0' then
  redis.call('UNLINK', KEYS[4])
end
if held then
  tombstone(KEYS[5], held.taken, lapsed, held.token)
end
local heard = 0
if ARGV[3] ~= '' then
  heard = ring(KEYS[3], ARGV[2], stamp, lapsed, 0, ARGV[3])
end
-- An ACL may forbid INFO; then there are none to wait for.
local info = redis.pcall('INFO', 'replication')
local follow = type(info) == 'string' and select(2, info:gsub('state=online', '')) or 0
return { now, stamp, heard, kept and kept.leased > hard and kept.raw or '', follow }
