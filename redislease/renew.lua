-- Lets a lease last for the TTL from now on, if the owner still has it. It never
-- creates one.
--
-- KEYS: the lock. ARGV: the owner, the TTL in ms.

local held = redis.call('GET', KEYS[1])
if not held then
  return 'missing'
end
if string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then
  return 'taken'
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'held'
