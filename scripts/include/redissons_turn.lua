--! fragment redissons_turn release heard foreign fair entries turn length
--
-- The turns of Redisson's clients, which do not heed the queue, and mostly ask later than clients of mortise. In a turn,
-- of 20 to 200 ms, mortise grants nothing that Redisson's clients may take. turn becomes true if there is one now, and
-- length the time that is left. A turn begins at a release when no more are owed: each release of mortise's counts one,
-- and a turn costs as many as there are entries, divided by the number of foreign clients; of both, eight count at most.
-- So with more foreign clients than entries a turn follows another, when a release of theirs was heard, which ends a
-- turn. A release of theirs outside of a turn costs as much as a turn (see redisson_heard). An unused turn doubles the length of the next one; after
-- three in a row there is a pause: a second if a foreign client was seen in the last 10 s, otherwise 16 turns.
--
-- foreign is the number of subscribers of Redisson's, -1 if they cannot be counted; fair that of foreign clients which
-- are counted in another way. begins: the turn begins now. misses is how many turns in a row were not used. What another
-- program has written counts as zero.
local names = {'window', 'pause', 'length', 'misses', 'seen', 'owed', 'charge', 'lapsed'}
local kept, fields = {}, redis.pcall('hmget', round, unpack(names)) -- not HGETALL: there may be more
for i = 1, #names do
  local n = tonumber(fields[i] or nil)
  kept[names[i]] = n and n >= -1 and n <= at + foreign_seen and n or 0
end
local all = math.min((foreign >= 0 and foreign or kept.seen > at and 1 or 0) + fair, turn_most)
local begins, misses, left = false, kept.misses, kept.window - at
turn = left > 0 and left <= window_longest
length = turn and math.ceil(left) or math.floor(math.min(math.max(kept.length, window_shortest), window_longest))
if (release or heard) and all > 0 and not turn then
  local pause, owed = kept.pause, kept.owed - (release and 1 or 0)
  if kept.window > 0 then
    length, misses = math.min(2 * length, window_longest), misses + 1
  end
  if misses >= misses_most then
    misses, pause = 0, at + (kept.seen > at and pause_short or pause_windows * length)
  end
  begins = owed < 0 and (at >= pause or pause > at + pause_longest)
  if begins then
    kept.charge, turn = math.max(math.min(entries, turn_most), 1) / all, true
    owed = owed + kept.charge
  end
  redis.pcall('hset', round, 'window', turn and at + length or 0, 'pause', pause, 'length', length,
    'misses', misses, 'seen', kept.seen, 'owed', math.max(owed, -1), 'charge', kept.charge)
  redis.pcall('pexpire', round, round_kept)
end
