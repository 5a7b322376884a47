--! fragment look lock free
--
-- free reports whether a lock may be granted to a client without an entry: the record is absent, no entry in the queue
-- can be served, and no window for foreign clients is open. If an entry can be served, the lock is reserved for it.
--! include queue_of lock=lock
local there = redis.pcall('exists', lock, queue, queue .. ':window')
free = there == 0
if not free and redis.call('exists', lock) == 0 then
  local served = false
  local asks = queue .. ':asks'
  --! include channel_of lock=lock
  --! include teller
  --! include serve_queue lock=lock mark='n' asker='' heard=false freed=false quiet=false heads=nil served=served
  free = not served
end
