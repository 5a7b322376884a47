--! script release_many
--! key * lock    hash
--! key * channel channel
--! arg 1 publish string
--! arg * owner   string
--! reply ints    for each lock: 1 done; 0 the owner does not hold the lock; -2 nothing was done, ask with release
--
-- As release with keep 0, for several at once that have nothing to do with each other. What goes wrong for
-- one, release tells; it spoils no other. Told first: where that is not allowed, nothing is released.
-- Without a read, unless somebody waits: a server that tracks notes nothing.
local answers = {}
for i = 1, #KEYS / 2 do
  local lock, channel = KEYS[2 * i - 1], KEYS[2 * i]
  local answer = -2
  local heard = redis.pcall(ARGV[1], channel, '00')
  if type(heard) == 'number' then
    local held = redis.pcall('hdel', lock, ARGV[i + 1])
    if held == 1 and heard > 0 then
      local next = 'mortise:1:next:' .. string.sub(channel, 24)
      local first = redis.pcall('zpopmin', next)[1] -- an error has none
      local second = first and redis.pcall('zrange', next, 0, 0)[1]
      redis.pcall(ARGV[1], channel, first and first .. (second or '0000000') .. string.format('%04d', math.min(heard, 9999)) or '2')
    end
    answer = type(held) == 'number' and held or -2
  end
  answers[i] = answer
end
return answers
