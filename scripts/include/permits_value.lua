--! fragment permits_value
--
-- count_value, for permits of either kind. A number that no semaphore has is no count: a sum beyond what the server counts
-- would fail a script after its first write.
--! include count_value
if value and #value > 17 then
  return redis.error_reply('WRONGKIND the key holds no count of permits')
end
