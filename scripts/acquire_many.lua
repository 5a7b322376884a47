--! script acquire_many
--! key * lock    hash
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each key: 0 granted; n>0 refused, n ms left; -1 refused, no expiry; -2 nothing was done, ask with acquire
--
-- As acquire, for several at once that have nothing to do with each other. What goes wrong for
-- one, acquire tells; it spoils no other.
--
-- One look at all: each read has a server that tracks note all keys of the script. So has the
-- one at the end.
local answers = {}
local named, free = {}, true
for i = 1, #KEYS do
  free = free and not named[KEYS[i]]
  named[KEYS[i]] = true
end
free = free and redis.call('exists', unpack(KEYS)) == 0
for i = 1, #KEYS do
  if free or redis.call('exists', KEYS[i]) == 0 then
    if redis.pcall('hset', KEYS[i], ARGV[2 * i], 1) == 1 then
      redis.call('pexpire', KEYS[i], ARGV[2 * i + 1])
      answers[i] = 0
    else
      answers[i] = -2
    end
  else
    local held = redis.pcall('hexists', KEYS[i], ARGV[2 * i])
    local left = redis.call('pttl', KEYS[i])
    if held == 1 then -- a write for WAIT, as in acquire
      if left > 0 then
        redis.call('pexpire', KEYS[i], left)
      end
      answers[i] = 0
    elseif held == 0 and redis.call('hexists', KEYS[i], 'mode') == 0 then
      answers[i] = left < 0 and -1 or math.max(left, 1)
    else
      answers[i] = -2
    end
  end
end
if ARGV[1] == '1' then
  redis.call('exists', KEYS[1])
end
return answers
