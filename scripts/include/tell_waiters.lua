--! fragment tell_waiters lock channel publish served
--
-- After a release: has the queue served if the record is absent, or else tells all waiters.
--! include queue_of lock=lock
if redis.call('exists', lock) == 0 and redis.pcall('exists', queue) == 1 then
  --! include serve_queue lock=lock queue=queue channel=channel asker='' heard=false freed=true served=served
end
if not served then
  redis.call(publish, channel, '0')
end
