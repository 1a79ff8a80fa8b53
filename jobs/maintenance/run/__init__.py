"""Steps of a plan, carried out under the table's lock."""
