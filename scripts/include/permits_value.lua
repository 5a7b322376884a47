--! fragment permits_value
--
-- Like count_value, for permits of either kind. A number too large for a semaphore is no count: a sum beyond the
-- range of Redis would fail a script after its first write.
--! include count_value
if value and #value > permits_longest then
  return redis.error_reply('WRONGKIND the key holds no count of permits')
end
