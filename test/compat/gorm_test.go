package compat

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

// A Room has many bookings.
type Room struct {
	gorm.Model
	Name     string `gorm:"uniqueIndex;size:100"`
	Price    float64
	Bookings []Booking `gorm:"constraint:OnDelete:CASCADE"`
}

// A Booking belongs to a room.
type Booking struct {
	ID     uint
	RoomID uint `gorm:"index"`
	Guest  *string
	At     time.Time
}

// roomWithFloor is a later version of the same table.
type roomWithFloor struct {
	gorm.Model
	Name  string `gorm:"uniqueIndex;size:200;not null;default:none"`
	Price string
	Floor int `gorm:"default:1"`
}

func (roomWithFloor) TableName() string { return "rooms" }

func openGorm(t *testing.T) (guarded, *gorm.DB) {
	t.Helper()
	g := open(t)
	db, err := gorm.Open(sqlite.Dialector{Conn: g.DB}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.AutoMigrate(&Room{}, &Booking{}); err != nil {
		t.Fatal(err)
	}
	return g, db
}

func TestGorm(t *testing.T) {
	g, db := openGorm(t)
	guest := "Ada"
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	room := Room{Name: "attic", Price: 12.5, Bookings: []Booking{{Guest: &guest, At: at}, {At: at.AddDate(0, 0, 1)}}}
	if err := db.Create(&room).Error; err != nil {
		t.Fatal(err)
	}
	upsert := Room{Name: "attic", Price: 13}
	err := db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.AssignmentColumns([]string{"price"})}).Create(&upsert).Error
	if err != nil {
		t.Errorf("upsert: %v", err)
	}
	if err := db.CreateInBatches([]Room{{Name: "cellar"}, {Name: "hall"}, {Name: "yard"}}, 2).Error; err != nil {
		t.Errorf("batches: %v", err)
	}
	var got Room
	if err := db.Preload("Bookings").First(&got, "name = ?", "attic").Error; err != nil {
		t.Fatal(err)
	}
	if got.Price != 13 || len(got.Bookings) != 2 || *got.Bookings[0].Guest != "Ada" || got.Bookings[1].Guest != nil || !got.Bookings[0].At.Equal(at) {
		t.Errorf("came back as %+v", got)
	}
	boom := errors.New("boom")
	err = db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Delete(&Room{}, "name = ?", "hall").Error; err != nil {
			return err
		}
		// A nested transaction is a savepoint.
		_ = tx.Transaction(func(tx *gorm.DB) error { return errors.Join(tx.Create(&Room{Name: "loft"}).Error, boom) })
		return tx.Create(&Room{Name: "shed"}).Error
	})
	if err != nil {
		t.Errorf("transaction: %v", err)
	}
	var names []string
	if err := db.Model(&Room{}).Order("name").Pluck("name", &names).Error; err != nil || len(names) != 4 || names[2] != "shed" {
		t.Errorf("rooms are %q, %v", names, err)
	}
	rows, err := db.Model(&Room{}).Rows()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		// A query while rows are open.
		if err := errors.Join(db.ScanRows(rows, &got), db.First(&Booking{}, "room_id = ?", room.ID).Error); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Error(err)
	}
	g.wantFenced(t, map[string]func(context.Context) error{
		"First":  func(ctx context.Context) error { return db.WithContext(ctx).First(&Room{}).Error },
		"Update": func(ctx context.Context) error { return db.WithContext(ctx).Model(&room).Update("price", 1).Error },
		"Transaction": func(ctx context.Context) error {
			return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return tx.First(&Room{}).Error })
		},
	})
}

// twoBookings fails if a rebuilt table took along the rows that refer to it.
func twoBookings(db *gorm.DB) error {
	var n int64
	if err := db.Model(&Booking{}).Count(&n).Error; err != nil || n == 2 {
		return err
	}
	return fmt.Errorf("%d bookings are left of 2", n)
}

// GORM's migrator rewrites tables and asks SQLite about them.
func TestGormMigrator(t *testing.T) {
	_, db := openGorm(t)
	if err := db.Create(&Room{Name: "attic", Price: 12, Bookings: []Booking{{}, {}}}).Error; err != nil {
		t.Fatal(err)
	}
	for range 2 { // again changes nothing
		if err := db.AutoMigrate(&roomWithFloor{}); err != nil {
			t.Fatalf("AutoMigrate: %v", err)
		}
	}
	if err := twoBookings(db); err != nil {
		t.Errorf("AutoMigrate: %v", err)
	}
	m := db.Migrator()
	if !m.HasColumn(&roomWithFloor{}, "Floor") || !m.HasIndex(&Room{}, "Name") || m.HasTable("nothing") {
		t.Error("the migrator does not see the schema")
	}
	if tables, err := m.GetTables(); err != nil || len(tables) != 3 { // and sqlite_sequence
		t.Errorf("GetTables: %q, %v", tables, err)
	}
	if types, err := m.ColumnTypes(&roomWithFloor{}); err != nil || len(types) != 7 {
		t.Errorf("ColumnTypes: %d, %v", len(types), err)
	}
	if _, err := m.GetIndexes(&roomWithFloor{}); err != nil {
		t.Errorf("GetIndexes: %v", err)
	}
	for what, err := range map[string]error{
		"AlterColumn": errors.Join(m.AlterColumn(&roomWithFloor{}, "Price"), twoBookings(db)),
		"DropColumn":  m.DropColumn(&roomWithFloor{}, "Floor"),
		"RenameTable": m.RenameTable("bookings", "stays"),
		"DropTable":   m.DropTable("stays"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	var got Room
	if err := db.First(&got).Error; err != nil || got.Name != "attic" {
		t.Errorf("after the migrations: %+v, %v", got, err)
	}
}
