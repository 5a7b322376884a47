--! fragment read_back track lock
--
-- A connection that tracks hears of changes to what it read last: its own write dropped the registration.
if track == '1' then
  redis.call('exists', lock)
end
