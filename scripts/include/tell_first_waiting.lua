--! fragment tell_first_waiting first message
--
-- Sends a message to the client of first, the first entry that waits for a semaphore or a read-write lock. If the
-- message reaches no subscriber, the entry is removed, and the client of the next entry gets the message, and so on, 64
-- at most. first is then the first entry that waits. An entry stays if its subscribers cannot be counted.
for _ = 1, entries_passed do
  if not first or tell(first, message, true) ~= 0 or string.sub(first, 1, 1) == 'n' then
    break
  end
  redis.pcall('zrem', queue, first)
  redis.pcall('hdel', queue .. ':wants', first, 'lease:' .. first)
  first = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
end
