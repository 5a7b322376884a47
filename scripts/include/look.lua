--! fragment look lock free
--
-- Tells in free whether a lock may be granted to an asker without an entry: its record is absent, and nothing in its
-- queue can be served, nor is it the turn of foreign clients.
--! include queue_of lock=lock
local there = redis.pcall('exists', lock, queue, queue .. ':window')
free = there == 0
if not free and redis.call('exists', lock) == 0 then
  local served = false
  --! include channel_of lock=lock
  --! include serve_queue lock=lock queue=queue channel=channel mark='n' asker='' heard=false freed=false served=served
  free = not served
end
