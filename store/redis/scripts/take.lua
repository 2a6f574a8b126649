-- Answers the entry; grants the lease, or says who holds it, or which failure is remembered.
-- KEYS: head lease page-note failure notes
-- ARGV: place host(label) token holder ttl(ms; 0: look only) at(µs) class despite(date of a failure)
--   broken(SHA-1 of a head the client could not use) over(token of a holder that is gone)
local place, host, token, holder, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local at, class, broken, over_token = tonumber(ARGV[6]), ARGV[7], ARGV[9], ARGV[10]
local now = clock()
local got = read(4)
local kept, held, over = entry(got[1]), lease(got[2]), ended(got[2])
-- A lease is judged by the tags of what lies there already, too: what it brings will probably have the same.
local notes = said(got[3], KEYS[5], place, host .. (kept and kept.labels or ''))

-- Leases of one key are told apart, and compared with notes and entries, by when they were taken: always later than
-- anything before, even when the clock was set back.
local taken = math.max(now, notes.last + 1)
if kept then taken = math.max(taken, kept.leased + 1) end
if over then taken = math.max(taken, over.taken + 1) end

if kept and (kept.leased <= notes.hard or (broken ~= '' and redis.sha1hex(kept.raw) == broken)) then
  kept = nil
end
if held and held.taken <= notes.newest then -- revoked by a purge
  held = nil
end
local dated = kept and since(notes.dates, kept.leased) or 0
local bound = kept and kept.leased <= notes.validate and notes.validate or 0
-- A signpost is never filled itself: whoever follows it asks for a variant.
local enough = kept and (kept.kind == SIGNPOST or (kept.fresh > at and dated == 0 and bound == 0))
-- A soft purge moves the windows to its own date (store/notes.go).
local rescue = kept and kept.rescue - (dated > 0 and math.max(kept.fresh - dated, 0) or 0)
local stands_in = kept and (kept.kind == ANSWER or kept.kind == PART) and rescue > now and bound == 0

local reply = { now, kept and kept.raw or false, dated, bound, 0, held and held.raw or false, false, 0, 0, false }
if ttl == 0 then
  return reply
end
if held and held.token == token then -- asked again
  redis.pcall('PEXPIRE', KEYS[2], ttl)
  reply[5], reply[6] = held.taken, false
  return reply
end
if enough then
  return reply
end
if held and held.token == over_token then -- its holder is gone; should it live, its commit finds another token
  taken, held, reply[6] = math.max(taken, held.taken + 1), nil, false
end
if held then
  join(KEYS[2], held, class)
  return reply
end
local failed, outcome = (got[4] or ''):match('^F2|(%d+)|(.*)$')
if sane(failed) and stands_in and sane(failed) > tonumber(ARGV[8]) then
  reply[7], reply[8], reply[9] = outcome, redis.call('PTTL', KEYS[4]), sane(failed)
  return reply
end
local set = redis.pcall('SET', KEYS[2], table.concat({ 'L1', class, '0', int(taken), holder, token }, '|'), 'PX', ttl)
if set.err then
  reply[10] = set.err
else
  reply[5] = taken
  latest(KEYS[5], taken, ttl)
end
return reply
