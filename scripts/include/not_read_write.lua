--! fragment not_read_write
--
-- Refuses a read-write lock.
if redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGKIND the key holds a read-write lock')
end
