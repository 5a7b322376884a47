--! script acquire_many
--! key * lock    hash
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each key: 0 granted; n>0 refused, n ms left; -1 refused, no expiry; -2 nothing was done, ask with acquire
--
-- As acquire, for several at once that have nothing to do with each other. What goes wrong for one,
-- acquire tells; it spoils no other. An error of the script means that nothing was done.
--
-- One look at all: before Redis 7.2, each read has a server that tracks note all keys of the script.
local answers, named = {}, {}
local free = true
for i = 1, #KEYS do
  free = free and not named[KEYS[i]]
  named[KEYS[i]] = true
end
free = redis.call('exists', unpack(KEYS)) == 0 and free
for i = 1, #KEYS do
  local owner, lease = ARGV[2 * i], ARGV[2 * i + 1]
  local answer = -2
  if free or redis.call('exists', KEYS[i]) == 0 then
    if redis.pcall('hset', KEYS[i], owner, 1) == 1 then
      if redis.pcall('pexpire', KEYS[i], lease) == 1 then
        answer = 0
      else
        redis.pcall('hdel', KEYS[i], owner)
      end
    end
  else
    local held, left = redis.pcall('hexists', KEYS[i], owner), redis.pcall('pttl', KEYS[i])
    if held == 1 and type(left) == 'number' then -- a write, as in acquire; a server that does not write is none to ask
      if redis.pcall('pexpire', KEYS[i], left > 0 and left or lease) == 1 then
        answer = 0
      end
    elseif held == 0 and type(left) == 'number' and redis.pcall('hexists', KEYS[i], 'mode') == 0 then
      answer = left < 0 and -1 or math.max(left, 1)
    end
  end
  answers[i] = answer
end
if ARGV[1] == '1' then
  redis.call('exists', unpack(KEYS))
end
return answers
