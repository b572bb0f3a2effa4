"""What a person meets: commands, the terminal, the watch page, films."""
