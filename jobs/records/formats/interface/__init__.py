"""What a format gives: decoders, their options, writer schemas, problems of records."""
