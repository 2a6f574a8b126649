-- Writes an entry, and the signpost to it, and ends the lease; or does nothing at all.
-- KEYS: head lease page-note signpost notes failure bell segments...
-- ARGV: token taken outcome channel message  entry keep segments'-term(ms)  signpost('': none; KEYS[4] is not looked at)
--   SHA-1 of the signpost it was made from('': of none)  place host(label)
-- Answers 'lost', 'gone' (a segment), 'sign' and the signpost that is there, 'refused' and why, or 'done' and what the
-- entry and the signpost replaced (the ends of their values, which name the segments).
local token, taken, keep, term = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7]), ARGV[8]
local now = clock()
local got = read(4)
local function about(labels)
  return said(got[3], KEYS[5], ARGV[11], ARGV[12] .. labels)
end
local kept, held, over = entry(got[1]), lease(got[2]), ended(got[2])
local alive = kept and kept.leased > about(kept.labels).hard
local newest = about(entry(ARGV[6]).labels).newest -- of what the notes say of what is brought
local filled = ARGV[3]

if over and over.token == token and over.outcome == filled then
  return { now, 'done' }
end
local mine = held and held.token == token
if mine then
  taken = held.taken -- the holder may not know it: its take was never answered
end
local absent = not mine and not held and not over
if absent and kept and kept.leased == taken then -- the same, so long ago that the tombstone is gone
  return { now, 'done' }
end
-- A lease merely absent (FLUSHDB, eviction) may be retaken by its commit (R14), but nothing leased later is undone.
if taken <= newest or (kept and kept.leased > taken) or not (mine or absent) then
  if mine then
    local how = taken <= newest and revoked or lapsed
    tombstone(KEYS[2], taken, how, token)
    ring(KEYS[7], ARGV[4], taken, how, 0, ARGV[5])
  end
  return { now, 'lost' }
end

local function generation(raw)
  return raw:sub(-tail, -tail + 15)
end
for i = 8, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    if kept and generation(kept.raw) == generation(ARGV[6]) then -- after a 304: what it names is gone too
      redis.call('DEL', KEYS[1])
    end
    return { now, 'gone' }
  end
end

local signs, sign, stays = ARGV[9] ~= '', nil, keep
if signs then
  sign = entry(got[4])
  local there = sign and sign.kind == SIGNPOST and sign.leased > about('').hard
  if ARGV[10] ~= (there and redis.sha1hex(sign.raw) or '') then
    return { now, 'sign', there and sign.raw or '' }
  end
  if there then
    stays = math.max(keep, redis.call('PTTL', KEYS[4]))
  end
end

local function stamped(raw)
  return raw:sub(1, 30) .. struct.pack('>I8', taken) .. raw:sub(39)
end
local function later(at, a, b)
  return moment(a, at) > moment(b, at) and a:sub(at, at + 7) or b:sub(at, at + 7)
end
local function put(key, value, ms)
  local set = redis.pcall('SET', key, stamped(value), 'PX', ms)
  return set.err
end

local err
local marks = alive and ARGV[6]:byte(6) == MARKER
  and later(39, kept.raw, ARGV[6]) .. later(47, kept.raw, ARGV[6])
local lends = marks and kept.kind ~= MARKER
if lends then
  local set = redis.pcall('SETRANGE', KEYS[1], 38, marks)
  err = type(set) == 'table' and set.err
  if not err then -- the reason lies under the head's checksum, so a lent one goes to the end of the value
    redis.call('SETRANGE', KEYS[1], #kept.raw - 1, ARGV[6]:sub(-1))
  end
elseif marks then
  err = put(KEYS[1], ARGV[6]:sub(1, 38) .. marks .. ARGV[6]:sub(55), math.max(keep, redis.call('PTTL', KEYS[1])))
else
  err = put(KEYS[1], ARGV[6], keep)
end
if err then
  return { now, 'refused', err }
end
for i = 8, #KEYS do
  redis.call('PEXPIRE', KEYS[i], term)
end
if signs then
  put(KEYS[4], ARGV[9], stays)
end
redis.call('DEL', KEYS[6])
latest(KEYS[5], math.max(about('').last, taken), stays)
tombstone(KEYS[2], taken, filled, token)
if alive or sign or (mine and held.waited) then
  ring(KEYS[7], ARGV[4], taken, filled, (alive or sign) and 1 or 0, ARGV[5])
end
return { now, 'done', kept and not lends and kept.raw:sub(-tail) or '', sign and sign.raw:sub(-tail) or '' }
