--! fragment count_value
--
-- The value of a key that holds a count; nil where there is none.
local value = redis.call('get', KEYS[1])
if value and not string.find(value, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
