--! fragment tell_second entry after
--
-- Tells the client of an entry that it is the first that waits, and to ask after a time in ms.
redis.pcall(string.sub(entry, 1, 1) == 's' and 'spublish' or 'publish',
  channel .. ':to:' .. string.match(entry, '^.?([^:]*)'), 'n' .. after .. ':' .. entry)
