-- Ends a lease without writing. Another's is left alone.
-- KEYS: lease failure bell
-- ARGV: token outcome remember(ms) channel message
local now = clock()
local held = lease(read(1)[1])
if not held or held.token ~= ARGV[1] then
  return { now }
end
tombstone(KEYS[1], held.taken, ARGV[2], held.token)
if tonumber(ARGV[3]) > 0 then
  redis.call('SET', KEYS[2], 'F2|' .. int(held.taken) .. '|' .. ARGV[2], 'PX', ARGV[3])
end
if held.waited then
  ring(KEYS[3], ARGV[4], held.taken, ARGV[2], 0, ARGV[5])
end
return { now }
