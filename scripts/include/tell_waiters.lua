--! fragment tell_waiters lock channel publish served
--
-- After a release: has the queue served if the record is absent, or else tells all waiters. Foreign
-- clients that heard it have a turn.
--! include queue_of lock=lock
local count = redis.pcall('zcard', queue)
local queued = count ~= 0 and type(count) == 'number' -- another may have written other data there
local told = not queued and redis.call(publish, channel, '+0') -- 0 to Redisson
if (queued or told > 0) and redis.call('exists', lock) == 0 then
  local mark = publish == 'spublish' and 's' or 'c'
  --! include serve_queue lock=lock queue=queue channel=channel mark=mark asker='' heard=false freed=true served=served
end
if queued and not served then
  redis.call(publish, channel, redis.call('exists', lock, queue) == 0 and '+0' or '0')
end
