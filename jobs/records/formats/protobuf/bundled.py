"""Bundled .proto files: those that schemas of Confluent's registry import without listing them as references.

Google's own files are in packages: `google/protobuf` in grpcio-tools, `google/type` and more in
googleapis-common-protos. Such schemas rely on the names and numbers here.
"""

from __future__ import annotations

from collections.abc import Mapping

_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""

_DECIMAL = """\
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""

BUNDLED: Mapping[str, str] = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}
"""Text by import path."""

FIELD_META = 1088
"""The number of Confluent's `field_meta` among the options of a field."""
