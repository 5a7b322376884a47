--! script latch_delete
--! key 1 latch   string
--! key 2 once    string
--! arg 1 keep    ms
--! arg 2 publish string
--! reply int     1 deleted; 0 there was no count
--
-- Removes a latch and tells those who wait. once remembers, for keep, what this
-- request came to.
local value = redis.call('get', KEYS[1])
if value and not string.find(value, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
if not redis.call('set', KEYS[2], value and '1' or '0', 'px', ARGV[1], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if not value then
  return 0
end
redis.call('del', KEYS[1])
local channel = 'redisson_countdownlatch__channel__{' .. KEYS[1] .. '}'
if ARGV[2] == 'spublish' and string.find(KEYS[1], '{', 1, true) then
  channel = 'redisson_countdownlatch__channel__' .. KEYS[1] -- in the slot of the latch
end
redis.call(ARGV[2], channel, '1')
return 1
