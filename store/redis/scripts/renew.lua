-- Prolongs a lease and answers the best class left in it; -1: lost.
-- KEYS: lease page-note notes
-- ARGV: place host(label) token taken ttl(ms) lease(to be written again where it is merely absent: flushed or evicted)
local taken = tonumber(ARGV[4])
local now = clock()
local got = read(2)
local notes = said(got[2], KEYS[3], ARGV[1], ARGV[2])
local held = lease(got[1])
if held and held.token == ARGV[3] and held.taken > notes.newest then
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  latest(KEYS[3], math.max(notes.last, taken), tonumber(ARGV[5]))
  return { now, tonumber(held.class) }
end
if held or ended(got[1]) or taken <= notes.newest then
  return { now, -1 }
end
redis.call('SET', KEYS[1], ARGV[6], 'PX', ARGV[5])
return { now, tonumber(lease(ARGV[6]).class) }
