-- Whether a lease is still held: its time left in ms and no outcome, or 0, how it ended and its taken, as far as that is known.
-- KEYS: lease page-note all-note
-- ARGV: token
local now = clock()
local got = read()
local _, _, _, newest = notes(got[2], got[3])
local held, over = lease(got[1]), ended(got[1])
if held and held.token == ARGV[1] and held.taken > newest then
  join(KEYS[1], held)
  return { now, redis.call('PTTL', KEYS[1]), false, 0 }
end
if over and over.token == ARGV[1] then
  return { now, 0, over.outcome, over.taken }
end
return { now, 0, false, 0 }
