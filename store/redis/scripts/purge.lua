-- Dates a page's note, and drops its head (hard) and turns its lease into a tombstone.
-- KEYS: page-note head lease notes bell
-- ARGV: place host(label) mode(0: hard, 1: soft, 2: must validate) date(µs; 0: now) channel message
-- What is told again, with its date, rings if it was forgotten: a replica that could not hear it may have been answered meanwhile.
-- Answers the note's date, how many heard the bell, how many replicas follow, and the page's head if there was one.
local stamp = tonumber(ARGV[4])
local now = clock()
local got = read(3)
local dates = note(got[1])
local kept, held = entry(got[2]), lease(got[3])
local notes = said(got[1], KEYS[4], ARGV[1], ARGV[2] .. (kept and kept.labels or ''))
if stamp == 0 then
  stamp = math.max(now, notes.last, held and held.taken or 0, kept and kept.leased or 0)
end
local news = date(dates, kind(ARGV[3]), stamp) or tonumber(ARGV[4]) == 0
must_set(KEYS[1], noted(dates), longest)
if kept and kept.leased <= dates[HARD] then
  redis.call('UNLINK', KEYS[2])
end
if held and held.taken <= stamp then
  tombstone(KEYS[3], held.taken, revoked, held.token)
end
local heard = ring(KEYS[5], ARGV[5], stamp, revoked, 0, news and ARGV[6] or '')
return { now, stamp, heard, followers(), kept and kept.leased > notes.hard and kept.raw or '' }
