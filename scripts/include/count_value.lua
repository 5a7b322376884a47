--! fragment count_value
--
-- The value of a key that holds a count; nil where there is none. A number that a count cannot have is none: a sum
-- beyond what the server counts would fail a script after its first write.
local value = redis.call('get', KEYS[1])
if value and (#value > 17 or not string.find(value, '^%-?%d+$')) then
  return redis.error_reply('WRONGKIND the key holds no count')
end
