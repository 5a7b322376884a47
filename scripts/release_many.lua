--! script release_many
--! key * lock    hash
--! key * channel channel
--! arg 1 publish string
--! arg * owner   string
--! reply ints    for each lock: 1 done; 0 the owner does not hold the lock; -2 nothing was done, ask with release
--
-- As release with keep 0, for several at once that have nothing to do with each other. What goes
-- wrong for one, release tells; it spoils no other. Without a read, unless somebody waits: a server that tracks
-- notes nothing.
local publish = ARGV[1] ~= '' and ARGV[1] or 'publish'
local answers = {}
for i = 1, #KEYS / 2 do
  local channel = KEYS[2 * i]
  local held = redis.pcall('hdel', KEYS[2 * i - 1], ARGV[i + 1])
  if held == 1 then
    local heard = redis.call(publish, channel, '00')
    if heard > 0 or ARGV[1] == '' then
      local next = 'mortise:1:next:' .. string.sub(channel, 24)
      local first = redis.pcall('zpopmin', next)[1] -- an error has none
      local second = first and redis.call('zrange', next, 0, 0)[1]
      redis.call(publish, channel, first and first .. (second or '0000000') .. string.format('%04d', math.min(heard, 9999)) or '2')
    end
  end
  answers[i] = held == 0 and 0 or held == 1 and 1 or -2
end
return answers
