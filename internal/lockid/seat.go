package lockid

// SeatClass is the class of the pairs that are seats. Nobody else is to lock them.
const SeatClass int32 = -1746239857

// Seats is how many sessions wait for one lock on the server at a time.
const Seats = 4

// Seat is the first seat at a lock; its other seats have the objects that follow. Locks
// whose seats fall together share them, which does no harm but to make them wait longer.
func (id ID) Seat() ID {
	mixed := uint64(id.Number) * 0x9e3779b97f4a7c15
	return OfPair(SeatClass, int32(uint32(mixed>>32)^uint32(id.Space))&^(Seats-1))
}
