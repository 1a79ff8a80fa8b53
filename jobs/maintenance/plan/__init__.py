"""Plans of maintenance: pure rules about what pays, with reasons and estimates."""
