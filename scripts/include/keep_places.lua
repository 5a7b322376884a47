--! fragment keep_places out free
--
-- Protects the places in a queue with waiters of Redisson. At a grant to such a waiter, Redisson subtracts the
-- waiter's wait from all scores; it also removes expired first places, without a message. So here each score is set to
-- five minutes from now (the default of Redisson's fairLockWaitTimeout) or more, and the gaps between scores stay:
-- Redisson added a gap for a waiter, and will subtract it. The gap of out, an owner that leaves, is dropped. A place
-- that was cut, because its owner was not heard of, stays cut until the owner asks. Redisson's waiters never raise
-- their scores, so their cut places are raised here, except the first place of a free lock.
--
-- Redisson adds and subtracts whole milliseconds, so the fraction of a score is a mark of mortise. .5 and .75: no
-- waiter of Redisson was before the place when the score was written. .25 and .75: the place was cut. New waiters come
-- last, so the last place alone can show that the queue has no waiter of Redisson: then nothing changes, and mixed
-- stays false. Otherwise the first places_read places are kept. mixed: one of them is, or may be, of Redisson. chain:
-- the score of the last one. stands: the caller has a place, or may have one behind them.
local mixed, stands, chain = false, false, now + place_wait
local form = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$' -- an owner of Redisson
local tail = redis.call('lindex', KEYS[2], -1)
local ends = math.min(tonumber(tail and redis.call('zscore', KEYS[3], tail) or 0), score_most)
local ours = not tail or not string.find(tail, form) and ends % 1 >= mark_ours
if not ours and out == '' and ends % mark_ours == 0 and not redis.call('zscore', KEYS[3], ARGV[1]) then
  mixed, chain = true, math.max(chain, math.ceil(ends)) -- a new place: grants, and requests of others, keep the rest
elseif not ours then
  local scores, put, bytes = {}, {}, 0
  for first = 0, places_searched - 1, places_page do
    local times = redis.call('zrange', KEYS[3], first, first + places_page - 1, 'withscores')
    for i = 1, #times, 2 do
      scores[times[i]] = math.min(tonumber(times[i + 1]), score_most) -- Redisson writes no larger score
      bytes = bytes + #times[i]
    end
    if #times < 2 * places_page or bytes > places_bytes then -- more is damaged data
      break
    end
  end
  local highest, last -- before this script: the highest uncut score so far, and the last score
  local places, whole
  --! include places_of most=places_read places=places whole=whole
  stands = not whole
  for i, field in ipairs(places) do
    local score, java = scores[field], string.find(field, form)
    mixed, stands = mixed or java ~= nil, stands or field == ARGV[1]
    if score then
      local new, cut = score, score % mark_ours ~= 0
      if field ~= out and (not cut or field == ARGV[1] or java and (i > 1 or not free)) then
        if highest then
          chain = chain + math.max(score - highest, java and math.min(score - last, place_wait) or 0, 0)
        elseif java then
          chain = math.max(chain, score)
        end
        new, cut = chain, false
      end
      last, highest = score, score % mark_ours ~= 0 and highest or math.max(highest or score, score)
      new = math.ceil(new) - (cut and (mixed and mark_cut or mark_ours_cut) or mixed and 0 or mark_ours)
      if new ~= score and field ~= out then
        put[#put + 1] = new
        put[#put + 1] = field
      end
    end
  end
  chain = math.ceil(chain)
  for i = 1, #put, unpack_most do
    redis.pcall('zadd', KEYS[3], unpack(put, i, math.min(i + unpack_most - 1, #put)))
  end
end
if mixed then -- Redisson's waiters never renew a time to live, and the queue would expire under them
  redis.pcall('persist', KEYS[2])
  redis.pcall('persist', KEYS[3])
end
