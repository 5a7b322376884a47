--! fragment keep_places out free
--
-- Keeps the places of a queue in which Redisson's waiters stand. Redisson subtracts a waiter's wait from all scores when the
-- waiter is granted the lock, and removes first places whose scores are over without a message. So each score is at
-- least five minutes from now (Redisson's own fairLockWaitTimeout) and what Redisson added for the waiters before it:
-- the gaps between the scores stay. That of out, which leaves, goes. A place that was cut, since its owner is not heard of,
-- is left alone until its owner asks. Redisson's waiters behind the first are never cut.
--
-- The fraction of a score tells what Redisson cannot: .5 or .75, that no waiter of Redisson's stood before it when it was
-- written; .25 or .75, that it was cut. So one look at the last place tells that none of Redisson's stands in
-- the queue, and then nothing is to be kept. Otherwise mixed is true, chain is the score of the last place, and stands
-- tells that the caller has a place, or may have one behind the first 4096, which are all that are kept.
local mixed, stands, chain = false, false, now + 300000
local form = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$' -- an owner of Redisson's
local tail = redis.call('lindex', KEYS[2], -1)
local ends = math.min(tonumber(tail and redis.call('zscore', KEYS[3], tail) or 0), 1e13)
local ours = not tail or not string.find(tail, form) and ends % 1 >= 0.5
if not ours and out == '' and ends % 0.5 == 0 and not redis.call('zscore', KEYS[3], ARGV[1]) then
  mixed, chain = true, math.max(chain, math.ceil(ends)) -- a new place; the other places are kept by grants and looks
elseif not ours then
  local times, scores, put = redis.call('zrange', KEYS[3], 0, 8191, 'withscores'), {}, {}
  for i = 1, #times, 2 do
    scores[times[i]] = math.min(tonumber(times[i + 1]), 1e13) -- more is not Redisson's
  end
  local highest, last -- as they were: the highest score so far that was not cut, and the last one
  for i, field in ipairs(redis.call('lrange', KEYS[2], 0, 4095)) do
    local score, java = scores[field], string.find(field, form)
    mixed, stands = mixed or java ~= nil, stands or field == ARGV[1] or i == 4096
    if score then
      local new, cut = score, score % 0.5 ~= 0
      if field ~= out and (not cut or field == ARGV[1] or java and (i > 1 or not free)) then
        if highest then
          chain = chain + math.max(score - highest, java and math.min(score - last, 300000) or 0, 0)
        elseif java then
          chain = math.max(chain, score)
        end
        new, cut = chain, false
      end
      last, highest = score, score % 0.5 ~= 0 and highest or math.max(highest or score, score)
      new = math.ceil(new) - (cut and (mixed and 0.75 or 0.25) or mixed and 0 or 0.5)
      if new ~= score and field ~= out then
        put[#put + 1] = new
        put[#put + 1] = field
      end
    end
  end
  chain = math.ceil(chain)
  for i = 1, #put, 1000 do
    redis.pcall('zadd', KEYS[3], unpack(put, i, math.min(i + 999, #put)))
  end
end
