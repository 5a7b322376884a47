--! fragment tell_queue_head queue publish channel
--
-- Tells the first waiter in the queue of a fair lock to ask.
local head = redis.pcall('lindex', queue, 0)
if type(head) == 'string' then
  redis.call(publish, channel .. ':' .. head, '0')
end
