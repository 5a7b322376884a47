--! fragment fields_of key size most fields
--
-- Sets fields to the fields and values of a hash of this size, or to nil if they are more than most, or take more than
-- fields_bytes: HGETALL of such damaged data would stop the server. Up to few_fields are read unmeasured, and all where
-- the user may not send MEMORY USAGE.
fields = nil
if size <= most then
  local bytes = size > few_fields and redis.pcall('memory', 'usage', key, 'samples', 0)
  if type(bytes) ~= 'number' or bytes <= fields_bytes then
    fields = redis.call('hgetall', key)
  end
end
