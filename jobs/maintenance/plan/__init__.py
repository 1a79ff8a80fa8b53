"""What pays: pure rules, with reasons and estimates."""
