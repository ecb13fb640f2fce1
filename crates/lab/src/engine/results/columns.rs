//! A summary for other programs: comma-separated values, and Parquet.
//!
//! Rows      one for each point and metric.
//! Columns   the parameters, in the order of their names, and the statistics. Both formats have the same.
//! Types     in Parquet, a parameter has the type of its values. Every column may have missing values.
//! Limits    Parquet is one row group without compression: a summary has at most some thousand rows.

use crate::engine::plan::plain;
use crate::engine::point::Value;
use crate::engine::question::Metric;
use crate::engine::results::summary::{Interval, Row, Spread, Summary};
use crate::report::escape::field;
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A column; a point may lack a parameter, and a spread an interval.
struct Column<'a> {
    name: &'a str,
    kind: PhysicalType,
    cells: Vec<Option<Value>>,
}

impl Column<'_> {
    fn parameter<'a>(name: &'a str, rows: &[(&Row, &str, &Spread)]) -> Column<'a> {
        let cells: Vec<Option<Value>> = rows.iter().map(|(row, ..)| row.point.get(name).cloned()).collect();
        let all = |is_kind: fn(&Value) -> bool| cells.iter().flatten().all(is_kind);
        let kind = if all(|value| matches!(value, Value::Flag(_))) {
            PhysicalType::BOOLEAN
        } else if all(|value| matches!(value, Value::Count(count) if i64::try_from(*count).is_ok())) {
            PhysicalType::INT64
        } else if all(|value| matches!(value, Value::Count(_) | Value::Figure(_))) {
            PhysicalType::DOUBLE
        } else {
            PhysicalType::BYTE_ARRAY
        };
        Column { name, kind, cells }
    }

    /// Writes the cells that have a value.
    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels: Vec<i16> = self.cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let cells = self.cells.iter().flatten();
        let number = |value: &Value| match value {
            Value::Count(count) => *count as f64,
            Value::Figure(figure) => *figure,
            Value::Flag(_) | Value::Word(_) => unreachable!("the column has numbers"),
        };
        match self.kind {
            PhysicalType::BOOLEAN => {
                put::<BoolType>(to, &levels, cells.map(|value| *value == Value::Flag(true)))
            }
            PhysicalType::INT64 => put::<Int64Type>(
                to,
                &levels,
                cells.map(|value| match value {
                    Value::Count(count) => *count as i64,
                    _ => unreachable!("the column has counts"),
                }),
            ),
            PhysicalType::DOUBLE => put::<DoubleType>(to, &levels, cells.map(number)),
            _ => {
                let words = cells.map(|value| value.to_string().into_bytes().into());
                put::<ByteArrayType>(to, &levels, words)
            }
        }
    }
}

fn put<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    levels: &[i16],
    values: impl Iterator<Item = T::T>,
) -> Result<()> {
    to.typed::<T>().write_batch(&values.collect::<Vec<_>>(), Some(levels), None).map(drop)
}

impl Summary {
    /// Returns the columns. `metrics` has the units; a metric that it lacks has none.
    fn columns(&self, metrics: &[Metric]) -> Vec<Column<'_>> {
        let rows: Vec<(&Row, &str, &Spread)> = self
            .rows
            .iter()
            .flat_map(|row| row.metrics.iter().map(move |(name, spread)| (row, name.as_str(), spread)))
            .collect();
        let unit =
            |name: &str| metrics.iter().find(|metric| metric.name == name).map_or("", |metric| metric.unit);
        let words = |name, of: &dyn Fn(&str) -> String| Column {
            name,
            kind: PhysicalType::BYTE_ARRAY,
            cells: rows.iter().map(|(_, metric, _)| Some(Value::Word(of(metric)))).collect(),
        };
        let counts = |name, of: fn(&Row, &Spread) -> usize| Column {
            name,
            kind: PhysicalType::INT64,
            cells: rows.iter().map(|(row, _, spread)| Some(Value::Count(of(row, spread) as u64))).collect(),
        };
        // Up to twelve significant digits: 1.44, not 1.4399999999999997.
        let figure = |figure: f64| Value::Figure(plain(figure));
        let figures = |name, of: fn(&Spread) -> f64| Column {
            name,
            kind: PhysicalType::DOUBLE,
            cells: rows.iter().map(|(.., spread)| Some(figure(of(spread)))).collect(),
        };
        let interval = |name, of: fn(&Interval) -> f64| Column {
            name,
            kind: PhysicalType::DOUBLE,
            cells: rows.iter().map(|(.., spread)| spread.interval.as_ref().map(of).map(figure)).collect(),
        };
        let parameters: BTreeSet<&String> = self.varying.keys().chain(self.fixed.0.keys()).collect();
        let mut columns: Vec<Column<'_>> =
            parameters.into_iter().map(|name| Column::parameter(name, &rows)).collect();
        columns.extend([
            words("metric", &str::to_owned),
            words("unit", &|name| unit(name).to_owned()),
            counts("count", |_, spread| spread.count),
            counts("disturbed", |row, _| row.disturbed),
            figures("min", |spread| spread.min),
            figures("lower_quartile", |spread| spread.lower_quartile),
            figures("median", |spread| spread.median),
            figures("upper_quartile", |spread| spread.upper_quartile),
            figures("max", |spread| spread.max),
            interval("interval_low", |interval| interval.low),
            interval("interval_high", |interval| interval.high),
            interval("confidence", |interval| interval.confidence),
        ]);
        columns
    }

    /// Returns comma-separated values (RFC 4180). `metrics` has the units.
    pub fn csv(&self, metrics: &[Metric]) -> String {
        let columns = self.columns(metrics);
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let cell = |cell: &Option<Value>| match cell {
            Some(Value::Word(word)) => field(word),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let rows = 0..columns.first().map_or(0, |column| column.cells.len());
        let rows = rows.map(|row| line(columns.iter().map(|column| cell(&column.cells[row])).collect()));
        line(columns.iter().map(|column| field(column.name)).collect()) + &rows.collect::<String>()
    }

    /// Returns the contents of a Parquet file. `metrics` has the units.
    pub fn parquet(&self, metrics: &[Metric]) -> Vec<u8> {
        self.try_parquet(metrics).expect("memory can be written, and each column has its type")
    }

    fn try_parquet(&self, metrics: &[Metric]) -> Result<Vec<u8>> {
        let columns = self.columns(metrics);
        let types = columns.iter().map(|column| {
            let is_text = column.kind == PhysicalType::BYTE_ARRAY;
            Type::primitive_type_builder(column.name, column.kind)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(is_text.then_some(LogicalType::String))
                .build()
                .map(Arc::new)
        });
        let fields = types.collect::<Result<_>>()?;
        let schema = Type::group_type_builder("summary").with_fields(fields).build()?;
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::default())?;
        let mut group = writer.next_row_group()?;
        for column in &columns {
            let mut to = group.next_column()?.expect("the schema has each column");
            column.write(&mut to)?;
            to.close()?;
        }
        group.close()?;
        writer.into_inner()
    }
}
