(function_definition declarator: (_) @declarator) @function
(translation_unit (declaration declarator: (_) @declarator) @variable)
(preproc_if (declaration declarator: (_) @declarator) @variable)
(preproc_ifdef (declaration declarator: (_) @declarator) @variable)
(preproc_else (declaration declarator: (_) @declarator) @variable)
(preproc_elif (declaration declarator: (_) @declarator) @variable)
(declaration_list (declaration declarator: (_) @declarator) @variable)
(linkage_specification (declaration declarator: (_) @declarator) @variable)
(struct_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(union_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(enum_specifier name: (type_identifier) @name body: (enumerator_list)) @enum
(enumerator name: (identifier) @name) @constant
(field_declaration declarator: (_) @declarator) @field
(type_definition declarator: (_) @declarator) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
