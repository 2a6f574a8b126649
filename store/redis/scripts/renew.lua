-- Prolongs a lease and answers the best class left in it; -1: lost.
-- KEYS: lease page-note all-note
-- ARGV: token taken ttl(ms) lease(to be written again where it is merely absent: flushed or evicted)
local taken = tonumber(ARGV[2])
local now = clock()
local got = read()
local _, _, _, newest = notes(got[2], got[3])
local held = lease(got[1])
if held and held.token == ARGV[1] and held.taken > newest then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return { now, tonumber(held.class) }
end
if held or ended(got[1]) or taken <= newest then
  return { now, -1 }
end
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
return { now, tonumber(lease(ARGV[4]).class) }
