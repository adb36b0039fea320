-- Lets a lease last for the TTL from now on, if the owner still has it. It never
-- creates one.
--
-- KEYS: the lock. ARGV: the owner, the TTL in ms.

local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then
  return held and 'taken' or 'missing'
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'held'
