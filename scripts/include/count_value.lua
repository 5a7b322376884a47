--! fragment count_value
--
-- The value of a key that holds a count; nil if there is none. A text that Redis does not count with, such as 007,
-- is no count: it would fail a script after its first write.
local value = redis.call('get', KEYS[1])
if value and value ~= '0' and not string.find(value, '^%-?[1-9]%d*$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
