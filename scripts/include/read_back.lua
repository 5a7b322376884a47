--! fragment read_back track lock
--
-- Reads the lock after a write. The server reports changes to a connection with tracking only for keys that the
-- connection has read: the write has dropped that registration, and the read restores it.
if track == '1' then
  redis.call('exists', lock)
end
