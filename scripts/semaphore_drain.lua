--! script semaphore_drain
--! key 1 semaphore string NAME
--! key 2 once      string mortise:1:once:{NAME}:ID
--! arg 1 keep      ms
--! reply int       how many there were
--! bound 12 calls 3 MB
--
-- Takes all free permits. once remembers, for keep, how many permits this request took.
--! include permits_value
if not redis.call('set', KEYS[2], value or '0', 'px', ARGV[1], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if value then
  redis.call('decrby', KEYS[1], value)
end
return tonumber(value or '0')
