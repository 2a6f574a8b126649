-- What all scripts know. layout.go puts its constants in front (longest, ended_for, tail, prefixes, softs, lapsed, revoked) and
-- has the formats;
-- the places in an entry are those of store/encoding.go. Moments are µs, which doubles hold exactly until 2255.

local ANSWER, PART, SIGNPOST, MARKER = 0, 1, 2, 3

-- Redis freezes the time for a script's whole run.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function int(n)
  return string.format('%.0f', n)
end

-- MGET, unlike GET, answers nothing instead of failing when a stranger keeps a list or a hash under our name.
local function read(n)
  return redis.call('MGET', unpack(KEYS, 1, n))
end

local function moment(raw, at)
  return struct.unpack('>I8', raw, at)
end

-- Whatever is no value of ours counts as absent, also when it only looks like one: a moment past 2^53 is none, and would
-- make every later one wrong.
local function sane(n)
  n = tonumber(n)
  return n and n <= 9007199254740991 and n or nil
end

local function entry(raw)
  if not raw or #raw < 64 or raw:sub(1, 4) ~= 'WEIR' or raw:byte(5) ~= 1 or raw:byte(6) > MARKER then
    return nil
  end
  local fresh, rescue, leased = sane(moment(raw, 7)), sane(moment(raw, 23)), sane(moment(raw, 31))
  local labels = 8 * struct.unpack('>I2', raw, 63)
  return fresh and rescue and leased and labels <= #raw - 64 and {
    raw = raw, kind = raw:byte(6), fresh = fresh, rescue = rescue, leased = leased, labels = raw:sub(65, 64 + labels),
  } or nil
end

local function lease(raw)
  local class, waited, taken, holder, token = (raw or ''):match('^L1|(%d)|(%d)|(%d+)|([^|]*)|(.*)$')
  return sane(taken) and { raw = raw, class = class, waited = waited == '1', taken = sane(taken), token = token }
end

local function ended(raw)
  local taken, outcome, token = (raw or ''):match('^E1|(%d+)|([^|]*)|(.*)$')
  return sane(taken) and { taken = sane(taken), outcome = outcome, token = token }
end

-- The dates of a note: the last hard one, the last that must validate, and the last soft ones, the latest first.
local HARD, VALIDATE, SOFT = 1, 2, 3

local function note(raw)
  local dates = { (raw or ''):match('^N2' .. ('|(%d+)'):rep(2 + softs) .. '$') }
  for i = 1, 2 + softs do
    dates[i] = sane(dates[i]) or 0
  end
  return dates
end

local function noted(dates)
  local parts = { 'N2' }
  for i = 1, #dates do
    parts[i + 1] = int(dates[i])
  end
  return table.concat(parts, '|')
end

-- One date more, as Dates.add in store/notes.go; tells whether that is news.
local function date(dates, kind, stamp)
  if kind ~= SOFT then
    local news = stamp > dates[kind]
    dates[kind] = math.max(dates[kind], stamp)
    return news
  end
  for i = SOFT, #dates do
    if stamp == dates[i] then
      return false
    elseif stamp > dates[i] then
      table.insert(dates, i, stamp)
      table.remove(dates)
      return true
    end
  end
  return false
end

local function add(dates, more)
  for i = 1, #more do
    date(dates, math.min(i, SOFT), more[i])
  end
end

-- From when on what was leased then is stale, as Dates.since in store/notes.go.
local function since(dates, leased)
  local first = 0
  for i = SOFT, #dates do
    if dates[i] < leased then
      return first
    end
    first = dates[i]
  end
  return leased
end

-- A purge's mode (0: hard, 1: soft, 2: must validate) among the dates.
local function kind(mode)
  return ({ HARD, SOFT, VALIDATE })[tonumber(mode) + 1]
end

-- One line for each prefix; also what follows the note's own bars.
local function lines(prefixes)
  return (prefixes or ''):gmatch('(N2' .. ('|%d+'):rep(2 + softs) .. ')|([^\n]*)')
end

-- What notes say of what lies, or will lie, under a key: that of its page, and those in the hash that its place on the web
-- tells or one of the labels, of eight bytes each. newest is the latest, which leases are compared with; last the latest
-- of all that were written here, whatever they are about, and of all leases.
local function said(page, hash, place, labels)
  local fields = { 'last', 'all', 'prefix' }
  for at = 1, #labels, 8 do
    fields[#fields + 1] = labels:sub(at, at + 7)
  end
  local got = redis.pcall('HMGET', hash, unpack(fields))
  if got.err then -- a stranger keeps something else there
    got = {}
  end
  local dates = note(page)
  add(dates, note(got[2]))
  for i = 4, #fields do
    add(dates, note(got[i]))
  end
  for value, prefix in lines(got[3]) do
    if place:sub(1, #prefix) == prefix then
      add(dates, note(value))
    end
  end
  local newest = math.max(unpack(dates))
  return {
    dates = dates, hard = dates[HARD], validate = dates[VALIDATE], newest = newest, last = math.max(newest, sane(got[1]) or 0),
  }
end

-- Writes down when the last lease was taken, for as long as it, or what it brings, is kept: a note must be later than what it
-- is about also when the clock was set back since, or another server's, that is behind, has taken over.
local function latest(hash, taken, ms)
  local set = redis.pcall('HSET', hash, 'last', int(taken))
  if type(set) == 'table' then -- a stranger's
    redis.call('DEL', hash)
    redis.call('HSET', hash, 'last', int(taken))
  end
  if redis.call('PTTL', hash) < ms then
    redis.call('PEXPIRE', hash, ms)
  end
end

-- Under OOM a SET is refused, unless the script has written already: deleting first makes room for the little that
-- must get through, and when even that fails nothing is what the key should hold.
local function must_set(key, value, ms)
  redis.call('DEL', key)
  redis.call('SET', key, value, 'PX', ms)
end

local function tombstone(key, taken, outcome, token)
  must_set(key, table.concat({ 'E1', int(taken), outcome, token }, '|'), ended_for)
end

-- Waiting is marked in the lease, so that its end rings; a better class promotes it (R26). SETRANGE keeps the TTL.
local function join(key, held, class)
  if class and class < held.class then
    redis.pcall('SETRANGE', key, 3, class)
  end
  if not held.waited then
    redis.pcall('SETRANGE', key, 5, '1')
  end
end

-- The number is the server's, so that all hear the same order and a gap is a gap. A bell that is refused (OOM, an
-- ACL) fails nothing: who waits also polls. At is the taken of the lease that ended, or the date of the purge.
local function ring(counter, channel, at, outcome, replaced, message)
  if message == '' then -- there is nothing to tell
    return 0
  end
  local n = redis.pcall('INCR', counter)
  if type(n) == 'number' then
    redis.call('PEXPIRE', counter, longest)
  else
    n = 0
  end
  local heard = redis.pcall('PUBLISH', channel, table.concat({ 'B1', counter, n, int(at), outcome, replaced, message }, '|'))
  return type(heard) == 'number' and heard or 0
end

-- How many replicas of this Redis could take over from it. An ACL may forbid INFO; then there are none to wait for.
local function followers()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and select(2, info:gsub('state=online', '')) or 0
end
