--! script latch_set
--! key 1 latch   string
--! key 2 once    string
--! arg 1 count   int
--! arg 2 keep    ms
--! arg 3 publish string
--! reply int     1 set; 0 there is a count already
--
-- Makes a latch with a count, and tells those who wait. once remembers, for keep, what
-- this request came to. The channel's name is made here and is no
-- key: Redisson puts braces around a name that has some, which is another slot.
local value = redis.call('get', KEYS[1])
if value and not string.find(value, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
if not redis.call('set', KEYS[2], value and '0' or '1', 'px', ARGV[2], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if value then
  return 0
end
redis.call('set', KEYS[1], ARGV[1])
local channel = 'redisson_countdownlatch__channel__{' .. KEYS[1] .. '}'
if ARGV[3] == 'spublish' and string.find(KEYS[1], '{', 1, true) then
  channel = 'redisson_countdownlatch__channel__' .. KEYS[1] -- in the slot of the latch
end
redis.call(ARGV[3], channel, '1')
return 1
