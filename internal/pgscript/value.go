package pgscript

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// voidOID is of a type that is sent as an empty string.
const voidOID = 2278

// A Value is one column of a row: its type, and what is in it.
type Value struct {
	oid  uint32
	data any
}

// Of is a value of any type that pgx knows, or of another as text. nil is NULL.
func Of(oid uint32, data any) Value { return Value{oid, data} }

// Bool is a value of type boolean.
func Bool(b bool) Value { return Value{pgtype.BoolOID, b} }

// Int4 is a value of type integer.
func Int4(n int32) Value { return Value{pgtype.Int4OID, n} }

// Int8 is a value of type bigint.
func Int8(n int64) Value { return Value{pgtype.Int8OID, n} }

// Text is a value of type text.
func Text(s string) Value { return Value{pgtype.TextOID, s} }

// Void is what functions return that return nothing.
func Void() Value { return Value{voidOID, ""} }

// encode returns the value on the wire; nil stands for NULL.
func (v Value) encode(types *pgtype.Map, format int16) ([]byte, error) {
	if v.data == nil {
		return nil, nil
	}
	if _, known := types.TypeForOID(v.oid); !known {
		return fmt.Append([]byte{}, v.data), nil
	}
	return types.Encode(v.oid, format, v.data, []byte{})
}

// oids lists the types of a row.
func oids(row []Value) []uint32 {
	list := make([]uint32, len(row))
	for i, v := range row {
		list[i] = v.oid
	}
	return list
}

// description is what precedes a row of values, or says that there is none.
func description(row []Value, formats []int16) pgproto3.BackendMessage {
	if len(row) == 0 {
		return &pgproto3.NoData{}
	}
	fields := make([]pgproto3.FieldDescription, len(row))
	for i, v := range row {
		fields[i] = pgproto3.FieldDescription{
			Name:         fmt.Appendf(nil, "column%d", i+1),
			DataTypeOID:  v.oid,
			DataTypeSize: -1,
			TypeModifier: -1,
			Format:       formatOf(formats, i),
		}
	}
	return &pgproto3.RowDescription{Fields: fields}
}

// formatOf reads a list of formats the way the protocol does: none means text,
// and one is for all columns.
func formatOf(formats []int16, i int) int16 {
	switch {
	case len(formats) == 0:
		return pgtype.TextFormatCode
	case len(formats) == 1:
		return formats[0]
	case i < len(formats):
		return formats[i]
	default:
		return pgtype.TextFormatCode
	}
}
