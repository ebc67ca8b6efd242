(type_spec name: (type_identifier) @name) @type
(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (struct_type (field_declaration_list (field_declaration !name type: (type_identifier) @super)))) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name type: (interface_type (type_elem (type_identifier) @super))) @interface
(type_alias name: (type_identifier) @name) @type
(field_declaration name: (field_identifier) @name) @field
(method_elem name: (field_identifier) @name) @method
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: [(type_identifier) @container (pointer_type (type_identifier) @container) (generic_type type: (type_identifier) @container) (pointer_type (generic_type type: (type_identifier) @container))])) name: (field_identifier) @name) @method
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @variable)))
(field_declaration !name type: [(type_identifier) @name (qualified_type name: (type_identifier) @name) (generic_type type: (type_identifier) @name)]) @field
(source_file (const_declaration (const_spec name: (identifier) @name) @constant))
