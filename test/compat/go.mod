module github.com/leaseholddb/leasehold/test/compat

go 1.26.0

replace github.com/leaseholddb/leasehold => ../..

require (
	github.com/jmoiron/sqlx v1.4.0
	github.com/leaseholddb/leasehold v0.0.0
	github.com/pressly/goose/v3 v3.30.1
	gorm.io/driver/sqlite v1.6.0
	gorm.io/gorm v1.31.2
)

require (
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/mattn/go-sqlite3 v1.14.53 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
